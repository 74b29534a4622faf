package fairq

import "math"

// fixed is a number in fixed point that may wrap around: only differences of
// nearby values mean anything, and what is compared stays near. Unlike a float
// it adds exactly, so what a turn took can be given back to the bit, in any
// order; and it can count for ever without losing digits. Each discipline has a
// unit of its own.
type fixed int64

// unit is one unit of cost, or of cost per weight: 2⁻²⁴ resolves the thousandth
// that cost 1 is at weight 1000 to 0.01 %.
const unit fixed = 1 << 24

// most bounds every single amount: 2³⁶, about 7·10¹⁰ units. Larger ones count as
// this much. Sums of four stay comparable.
const most fixed = 1 << 60

// amount converts x ≥ 0 units. An amount above 0 is at least the least one.
func amount(x float64) fixed {
	switch x *= float64(unit); {
	case x >= float64(most):
		return most
	case x <= 0:
		return 0
	}
	return max(1, fixed(math.Round(x)))
}

// of is the number of units in f for people, rounded to thousandths.
func (f fixed) of(unit fixed) float64 {
	return math.Round(1000*float64(f)/float64(unit))/1000 + 0 // no minus zero
}

// near keeps f within reach of zero, so that a sum of corrections cannot
// wrap around.
func (f fixed) near() fixed { return min(max(f, -2*most), 2*most) }

// signed is amount for numbers of either sign.
func signed(x float64) fixed {
	if x < 0 {
		return -amount(-x)
	}
	return amount(x)
}

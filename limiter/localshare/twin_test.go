package localshare_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// wrapped is a share over a store in memory; it can be looked at.
type wrapped struct {
	*localshare.Store
	inner *memstore.Store
}

func (w wrapped) Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	return w.inner.Peek(ctx, t)
}

// wrap puts a share over s. It belongs to the test.
func wrap(t *testing.T, s *memstore.Store, members int) wrapped {
	f := &seen{}
	f.see(members)
	l, err := localshare.New(localshare.Options{Inner: s, Policy: shares, Fleet: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return wrapped{l, s}
}

// While the store answers, nobody notices that there is anything in between.
func TestContract(t *testing.T) {
	const ttl = 200 * time.Millisecond
	storetest.Contract(t, func(t *testing.T) storetest.Fleet {
		m := memstore.New()
		return storetest.Fleet{
			Replica:  func() storetest.Store { return wrap(t, m.Replica(memstore.Options{LeaseTTL: ttl}), 3) },
			Crash:    func(s storetest.Store) { s.(wrapped).inner.Crash() },
			LeaseTTL: ttl,
		}
	})
}

// A fleet of one decides in an outage as a store in memory would, to the
// microsecond; a fleet of n as one that sees every cost n times.
func TestAloneIsLikeAStore(t *testing.T) {
	for n := range int64(4) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			rnd := storetest.Seeded(t)
			synctest.Test(t, func(t *testing.T) {
				n, m := n+1, memstore.New()
				share := wrap(t, m.Replica(memstore.Options{}), int(n))
				time.Sleep(10 * time.Second)
				m.SetDown(true)
				oracle := memstore.New().Replica(memstore.Options{})
				for i := range 2000 {
					k, like := limiter.Take{}, limiter.Take{}
					for j := range 1 + rnd.IntN(3) {
						rate := limiter.Rate{Limit: int64(7 * (j + 1)), Per: time.Second, Burst: 40}
						cost := rnd.Int64N(10)
						c := limiter.Charge{Bucket: bucketOf(fmt.Sprint(j, rnd.IntN(2))), Rate: rate, Cost: cost}
						k.Charges = append(k.Charges, c)
						c.Cost *= n
						like.Charges = append(like.Charges, c)
					}
					got, err := share.Admit(t.Context(), k)
					want, _ := oracle.Admit(t.Context(), like)
					if err != nil || got.OK != want.OK {
						t.Fatalf("step %d: %+v: got %+v, %v, want %+v", i, k, got, err, want)
					}
					for j, c := range got.Charges {
						w := want.Charges[j]
						if c.Wait != w.Wait || n == 1 && !reflect.DeepEqual(c, w) {
							t.Fatalf("step %d: %+v: got %+v, want %+v", i, k, c, w)
						}
					}
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				}
				m.SetDown(false)
			})
		})
	}
}

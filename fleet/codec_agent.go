package fleet

import (
	"encoding/binary"
	"math"
)

// maxAgents bounds the agents of one digest.
const maxAgents = 120

// fitAgents encodes as many of the first agents as fit into room bytes, with their
// number before them, and returns how many are left out.
func (d Digest) fitAgents(room int) (b []byte, omitted int) {
	var body []byte
	n := 0
	for n < min(len(d.Agents), maxAgents) {
		a := d.Agents[n]
		longer := appendName(body, a.Agent)
		longer = binary.AppendUvarint(longer, uint64(clamp(a.Held, 0, math.MaxInt32)))
		longer = binary.AppendUvarint(longer, uint64(clamp(a.Waiting, 0, math.MaxInt32)))
		if len(longer)+1 > room { // a count below 128 takes one byte
			break
		}
		body = longer
		n++
	}
	return append(binary.AppendUvarint(nil, uint64(n)), body...), len(d.Agents) - n
}

func (r *reader) agents() []AgentLoad {
	var all []AgentLoad
	for range r.count(maxAgents, 3) {
		all = append(all, AgentLoad{Agent: r.name(), Held: int(r.uvarint(math.MaxInt32)), Waiting: int(r.uvarint(math.MaxInt32))})
	}
	return all
}

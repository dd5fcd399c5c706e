package engine

import (
	"cmp"

	"github.com/rdsd/rdsd/internal/lists"
)

// Excess returns the processes that are to end so that what the others have in the state of a
// planned restart is at most most records. They are those that have most, of the user that has
// most.
func (e *Engine) Excess(most int) (end []*Client) {
	type process struct {
		c *Client
		n int
	}
	of, sum, all := map[*account][]process{}, map[*account]int{}, 0
	for _, c := range e.clients.all {
		n := c.records()
		of[c.acct] = append(of[c.acct], process{c, n})
		sum[c.acct] += n
		all += n
	}
	if all <= most {
		return nil
	}
	for _, ps := range of {
		lists.Sort(ps, func(a, b process) int { return cmp.Compare(b.n, a.n) })
	}
	for all > most {
		var a *account
		for b, n := range sum {
			if a == nil || n > sum[a] || n == sum[a] && b.of.Compare(a.of) < 0 {
				a = b
			}
		}
		p := of[a][0]
		of[a], sum[a], all = of[a][1:], sum[a]-p.n, all-p.n
		end = append(end, p.c)
	}
	return end
}

// records is how many records of the state are about what c has, apart from its regions and
// sockets, which have limits for all processes together: messages and buffers, local segments,
// what was received and not given back, destinations, and the addresses that were sent to.
func (c *Client) records() int {
	n := c.refs + c.segs + int(c.params.MaxRx) - len(c.rxFree)
	for _, sl := range c.slots {
		if sl != nil {
			n++
		}
	}
	for _, ce := range c.cells {
		if ce != nil {
			n++
		}
	}
	return n
}

package engine

import (
	"cmp"
	"slices"
)

// Excess returns the processes that are to end so that what the others have in the state of a
// planned restart is at most most records: messages, destinations and what was received and not
// given back. They are those that have most, of the user that has most.
func (e *Engine) Excess(most int) (end []*Client) {
	has, all := map[*account][]*Client{}, 0
	sum := map[*account]int{}
	for _, c := range e.clients.all {
		n := c.records()
		has[c.acct] = append(has[c.acct], c)
		sum[c.acct] += n
		all += n
	}
	if all <= most {
		return nil
	}
	for _, of := range has {
		slices.SortFunc(of, func(a, b *Client) int { return cmp.Compare(b.records(), a.records()) })
	}
	for all > most {
		var a *account
		for b, n := range sum {
			if a == nil || n > sum[a] || n == sum[a] && b.uid < a.uid {
				a = b
			}
		}
		c := has[a][0]
		n := c.records()
		has[a], sum[a], all = has[a][1:], sum[a]-n, all-n
		end = append(end, c)
	}
	return end
}

// records is how many records of the state are about what c has, apart from its regions and
// sockets, which have limits for all processes together. A local segment counts as one.
func (c *Client) records() int {
	n := c.refs + c.segs + int(c.params.MaxRx) - len(c.rxFree)
	for _, s := range c.socks {
		if s != nil {
			n += 2 * s.slots.N // and their cells
		}
	}
	return n
}

package config

import "slices"

// Value is one key and its value, written as for a flag.
type Value struct {
	Key
	Value  string
	Origin string // see Origins; "" if it is not known
}

// Values lists every key with its value in c.
func (c *Config) Values(from Origins) []Value {
	docs := Keys()
	out := make([]Value, len(docs))
	for i, k := range c.keys() {
		out[i] = Value{Key: docs[i], Value: k.get(), Origin: from[k.name]}
	}
	return out
}

// Change is a key whose value differs between two configurations.
type Change struct {
	Key
	Old, New string
}

// Diff lists the keys in which next differs from c. Both must be finished.
func (c *Config) Diff(next *Config) []Change {
	docs, theirs := Keys(), next.keys()
	var out []Change
	for i, k := range c.keys() {
		if was, is := k.get(), theirs[i].get(); was != is {
			out = append(out, Change{Key: docs[i], Old: was, New: is})
		}
	}
	return out
}

// ApplyLive copies from next every key that a running daemon can change.
func (c *Config) ApplyLive(next *Config) {
	mine, theirs := c.keys(), next.keys()
	for i, k := range mine {
		if !k.reload {
			continue
		}
		if err := k.assign(splitList(k, theirs[i].get())); err != nil {
			panic("config: a key does not take its own value: " + err.Error()) // TestValuesRoundTrip
		}
	}
	c.Peers.Allow = slices.Clone(next.Peers.Allow) // with the addresses of names
}

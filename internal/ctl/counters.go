package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// MarshalJSON writes an object in the list's order. Names need no escaping, because they
// consist of [a-z0-9_].
func (l CounterList) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, c := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, c.Name)
		b = append(b, ':')
		b = strconv.AppendUint(b, c.Value, 10)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads an object and keeps its order.
func (l *CounterList) UnmarshalJSON(data []byte) error {
	*l = CounterList{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if t, err := d.Token(); err != nil {
		return err
	} else if t == nil {
		return nil
	} else if t != json.Delim('{') {
		return fmt.Errorf("counters: %v instead of an object", t)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		if err != nil {
			return err
		}
		digits, _ := value.(json.Number)
		n, err := strconv.ParseUint(digits.String(), 10, 64)
		if err != nil {
			return fmt.Errorf("counter %v: %v is not a count", name, value)
		}
		*l = append(*l, Counter{name.(string), n})
	}
	return nil
}

// Get is the counter called name. It is false if there is none.
func (l CounterList) Get(name string) (uint64, bool) {
	for _, c := range l {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}

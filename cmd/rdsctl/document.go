package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// fieldsCSV writes a JSON document as lines of path and value, in its order:
// what -o csv is of an answer that is no list. Paths are the keys, and the places
// in arrays from 0, with dots between; null and what is empty are empty.
func fieldsCSV(w io.Writer, doc []byte) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	c := csv.NewWriter(w)
	_ = c.Write([]string{"field", "value"}) // its error is kept, and Flush's
	if err := fieldLines(c, d, ""); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// fieldLines writes the next value of d, which is at path.
func fieldLines(c *csv.Writer, d *json.Decoder, path string) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	under := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	n := 0
	switch tok {
	case json.Delim('{'):
		for ; d.More(); n++ {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if err := fieldLines(c, d, under(fmt.Sprint(key))); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for ; d.More(); n++ {
			if err := fieldLines(c, d, under(strconv.Itoa(n))); err != nil {
				return err
			}
		}
	case nil:
		return c.Write([]string{path, ""})
	default:
		return c.Write([]string{path, printable(fmt.Sprint(tok))})
	}
	if _, err := d.Token(); err != nil { // the end of the object or array
		return err
	}
	if n == 0 {
		return c.Write([]string{path, ""})
	}
	return nil
}

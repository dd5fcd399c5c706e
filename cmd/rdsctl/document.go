package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// fieldsCSV writes a JSON document as lines of path and value, in the document's order. It
// is -o csv for an answer that is no list. A path is the keys, and the indices in arrays
// from 0, joined by dots. null and empty values are empty.
func fieldsCSV(w io.Writer, doc []byte) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	c := csv.NewWriter(w)
	_ = c.Write([]string{"field", "value"}) // c keeps the error until Flush
	if err := fieldLines(c, d, ""); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// fieldLines writes the next value of d. Its path is path.
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

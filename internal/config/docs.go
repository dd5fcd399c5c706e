package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Docs is a configuration file that sets nothing: every key with its
// documentation, its default commented out.
func Docs() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Configuration of rdsd: %s. The later wins:
# defaults; this file; its drop-ins, FILE.d/*.toml by name; the environment,
# %s for peers.allow; flags, -%s.
# A key or value that rdsd does not know is an error. SIGHUP, or rdsctl config
# reload, applies the keys marked "reload"; others wait for a restart.
`, "TOML, strict", EnvName("peers.allow"), FlagName("peers.allow"))
	c := Default()
	for _, k := range c.keys() {
		by := "restart"
		if k.reload {
			by = "reload"
		}
		b.WriteString("\n" + wrap(k.doc) + wrap("Allowed: "+k.allowed+". Changed by: "+by+"."))
		fmt.Fprintf(&b, "#%s = %s\n", k.name, k.toml())
	}
	return b.String()
}

// toml is the key's value, written as in a file.
func (k key) toml() string {
	v := k.get()
	switch {
	case k.form == array:
		items := splitList(k, v)
		for i, s := range items {
			items[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case k.form&quoted != 0:
		return strconv.Quote(v)
	}
	return v
}

// wrap makes comment lines of at most 78 bytes, unless a word is longer.
func wrap(s string) string {
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(s) {
		if len(line)+1+len(word) > 78 && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

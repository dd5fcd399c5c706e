package ctl

// ConfigValue is one key of the daemon's configuration. Its value is written as for a flag:
// lists separated by commas.
type ConfigValue struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	// Origin is "default", "FILE:LINE", a variable's name or a flag. It is "" if the daemon
	// was not started from sources.
	Origin string `json:"origin"`
	Live   bool   `json:"live"` // a reload applies it; others need a restart
}

// ConfigChange is a key whose value in the sources differs from the value that the daemon
// uses.
type ConfigChange struct {
	Key    string `json:"key"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Origin string `json:"origin"` // of New
}

// Reload is the result of reading the configuration again.
type Reload struct {
	Applied  []ConfigChange `json:"applied"`
	Restart  []ConfigChange `json:"restart"` // these need a restart
	Warnings []string       `json:"warnings"`
}

func reload(admin, apply bool, b Backend) (*Reload, error) {
	if !admin {
		return nil, errorf(CodePermission, "the configuration: only root and the daemon's own user may reload or compare it")
	}
	r, err := b.Reload(apply)
	return &r, err
}

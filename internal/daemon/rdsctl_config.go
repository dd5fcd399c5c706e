package daemon

import "github.com/rdsd/rdsd/internal/ctl"

// Config lists the keys, their values and where those come from (ctl).
func (b backend) Config() ([]ctl.ConfigValue, error) {
	r := &b.d.reload
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []ctl.ConfigValue
	for _, v := range b.d.config().Values(r.origins) {
		out = append(out, ctl.ConfigValue{Key: v.Name, Value: v.Value, Default: v.Default, Origin: v.Origin, Live: v.Live})
	}
	return out, nil
}

// Reload applies the configuration anew, or says what that would do (ctl).
func (b backend) Reload(apply bool) (ctl.Reload, error) {
	if apply {
		return b.d.Reload()
	}
	r := &b.d.reload
	r.mu.Lock()
	defer r.mu.Unlock()
	out, _, err := b.d.compare()
	return out, err
}

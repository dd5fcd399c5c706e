package rds

import (
	"time"

	"github.com/rdsd/rdsd/internal/wait"
)

// strategy is the way to wait that o names.
func (o *Options) strategy() (wait.Strategy, error) {
	if o.Wait == "" {
		return wait.Auto, nil
	}
	s, err := wait.Parse(o.Wait)
	if err != nil {
		return 0, invalid("Options.Wait: %v", err)
	}
	return s, nil
}

// window is how long a waiting goroutine looks, if the daemon suggests that time. What is
// less than a microsecond is not worth a system call.
func (o *Options) window(suggested time.Duration) time.Duration {
	d := o.Spin
	if d == 0 {
		d = suggested
	}
	if d < time.Microsecond {
		return 0
	}
	return d
}

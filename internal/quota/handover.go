package quota

import (
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
)

// labels is the first version of a handed-over state that has the labels of accounts.
const labels = 6

// HandedOver reports whether s can name a. A state of an earlier version has users alone.
func HandedOver(s *handover.State, a config.Account) bool {
	return a.Label == "" || s.Version() >= labels
}

// HandOver has the name of an account go over. HandedOver has to be true of it.
func HandOver(s *handover.State, a *config.Account) {
	s.U32(&a.UID)
	if s.Version() >= labels {
		s.String(&a.Label, config.MaxLabel)
	}
	if !a.Valid() {
		s.Fail("an account of uid %d with the label %.80q", a.UID, a.Label)
	}
}

// HandOverLabel has the label of a process's cgroup go over. It returns false if the state is of an
// earlier version, which has no labels.
func HandOverLabel(s *handover.State, label *string) (known bool) {
	if s.Version() < labels {
		return false
	}
	a := config.Account{Label: *label}
	if s.String(&a.Label, config.MaxLabel); !a.Valid() {
		s.Fail("a process in an account with the label %.80q", a.Label)
		return true
	}
	*label = a.Label
	return true
}

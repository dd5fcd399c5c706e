package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Account is whom usage is charged to: a user, or with quota.accounts the processes of a
// cgroup.
type Account struct {
	UID   uint32 // of a user; 0 if there is a label
	Label string // what quota.accounts calls the cgroup; "": the account is the user's
}

// UserAccount is the account of the user uid.
func UserAccount(uid uint32) Account { return Account{UID: uid} }

// String is the account in a text.
func (a Account) String() string {
	if a.Label != "" {
		return "account " + a.Label
	}
	return fmt.Sprintf("uid %d", a.UID)
}

// Compare orders accounts: users by uid, then cgroups by label.
func (a Account) Compare(b Account) int {
	return cmp.Or(strings.Compare(a.Label, b.Label), cmp.Compare(a.UID, b.UID))
}

// Valid reports whether there can be such an account.
func (a Account) Valid() bool { return a.Label == "" || a.UID == 0 && validLabel(a.Label) }

// MaxLabel is the most bytes of a label, the kernel's limit for the name of a cgroup.
const MaxLabel = 255

// validLabel reports whether s can be the label of an account: quota.overrides can name it
// and a terminal can show it.
func validLabel(s string) bool { return s != "" && len(s) <= MaxLabel && visible(s) }

// visible reports whether s has visible ASCII characters only, and no comma.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' })
}

package ctl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Name is the user or account in a text.
func (u *User) Name() string {
	if u.UID == nil {
		return "account " + u.Account
	}
	return fmt.Sprintf("uid %d", *u.UID)
}

// charged is the user or account that o counts for, in a text.
func (o *Owner) charged() string {
	u := User{Account: o.Account}
	if o.Account == "" {
		u.UID = &o.UID
	}
	return u.Name()
}

// ByUser orders users by uid, then accounts by label.
func ByUser(a, b User) int {
	uid := func(u *User) uint32 {
		if u.UID == nil {
			return 0
		}
		return *u.UID
	}
	return cmp.Or(strings.Compare(a.Account, b.Account), cmp.Compare(uid(&a), uid(&b)))
}

// users is the part of list that who may see: its user, and its account.
func (who Caller) users(list []User) []User {
	if who.Admin {
		return list
	}
	return slices.DeleteFunc(list, func(u User) bool {
		if u.UID == nil {
			return u.Account != who.Account
		}
		return *u.UID != who.UID
	})
}

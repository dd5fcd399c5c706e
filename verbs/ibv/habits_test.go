//go:build ibv && linux

package ibv_test

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/verbstest"
)

// habits by driver.
var habits = map[string]verbstest.Habits{
	"rxe": {LocalStatus: verbs.WCLocQPOpErr, Silent: true, Padded: true, Immediate: true, PostAtomic: true, NoRNRCount: true, SRQOfQP: true},
	"siw": {LocalStatus: verbs.WCLocQPOpErr, RecvStatus: verbs.WCGeneralErr, Flushed: true, Silent: true, Immediate: true, LateSink: true,
		LateDereg: true, AnyRead: true, OwnAddress: true, NoSolicited: true},
}

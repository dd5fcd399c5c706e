package succession

import (
	"errors"
	"testing"
)

// TestAwaitServingUnseen: a successor that cannot be seen has ended if it closes the connection without that it
// has said that it serves.
func TestAwaitServingUnseen(t *testing.T) {
	for _, serves := range []bool{true, false} {
		old, next := pair(t)
		if serves {
			next.Serves()
		} else {
			next.Close()
		}
		if err := old.AwaitServing(nil); errors.Is(err, ErrGone) == serves || err != nil == serves {
			t.Errorf("serves %v: %v", serves, err)
		}
	}
}

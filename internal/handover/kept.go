//go:build !leaveout

package handover

// kept returns v, which a caller of this package writes, as number k of its call. A build with
// the tag leaveout can leave it out.
func kept[T comparable](v T, _ int) T { return v }

func keptBytes(b []byte) []byte { return b }

package lists

import (
	"cmp"
	"iter"
	"slices"
	"sort"
)

// Sort is slices.SortFunc for what is sorted seldom: rows of answers, keys of a state. The compiler makes
// slices.SortFunc anew for each type, ten to twenty kilobytes each. Sort is one sort for all.
func Sort[T any](list []T, compare func(a, b T) int) {
	sort.Slice(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// SortStable is Sort for a list of which equal ones keep their order.
func SortStable[T any](list []T, compare func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// Sorted is slices.Sorted, likewise.
func Sorted[T cmp.Ordered](all iter.Seq[T]) []T { return SortedFunc(all, cmp.Compare) }

// SortedFunc is slices.SortedFunc, likewise.
func SortedFunc[T any](all iter.Seq[T], compare func(a, b T) int) []T {
	list := slices.Collect(all)
	Sort(list, compare)
	return list
}

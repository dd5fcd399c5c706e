// Package leaveout has tests show that they need each value of a state that is handed over. A
// build with the tag leaveout can leave out any one value: its writer writes 0 instead (see package
// handover). Without the tag this package is empty.
package leaveout

package main

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
)

// maxErrno is the last errno that Linux numbers in a row.
const maxErrno = unix.EHWPOISON

// writeTexts writes what outcomes are called, as package rds says it: X(status, errno, text), first
// each status alone, then each errno that package rds explains.
func writeTexts(b *bytes.Buffer) {
	b.WriteString("\n/* The texts of outcomes. An errno that has none is what strerror says of it, behind the text of the status. */\n#define RDS_OUTCOMES(X)")
	fmt.Fprintf(b, " \\\n\tX(%d, 0, %q)", rds.Success, rds.Success.Error())
	for st := rds.Success + 1; st <= rds.Unknown; st++ {
		for errno := unix.Errno(0); errno <= maxErrno; errno++ {
			text := strings.TrimPrefix(rds.Completion{Status: st, Errno: errno}.Err().Error(), "outcome: ")
			switch text {
			case st.Error():
				fmt.Fprintf(b, " \\\n\tX(%d, 0, %q)", st, text)
			case st.Error() + ": " + errno.Error():
			default:
				fmt.Fprintf(b, " \\\n\tX(%d, %s, %q)", st, unix.ErrnoName(errno), text)
			}
		}
	}
	b.WriteString("\n\n/* The texts of notices that count messages: X(kind, text). */\n#define RDS_UNDELIVERED(X)")
	for _, k := range []rds.NoticeKind{rds.Lost, rds.NoSocket, rds.GaveUp, rds.NotGranted} {
		fmt.Fprintf(b, " \\\n\tX(%d, %q)", k, k.Error())
	}
	b.WriteString("\n")
}

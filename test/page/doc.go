// Package page tests the status page in a browser (make page). It needs Debian's chromium.
// RDSD_CHROMIUM names it; without that variable the tests are skipped.
package page

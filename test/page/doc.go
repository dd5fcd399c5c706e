// Package page looks at the status page as a browser does: make page. It needs
// Debian's chromium, and is skipped without RDSD_CHROMIUM, which names it.
package page

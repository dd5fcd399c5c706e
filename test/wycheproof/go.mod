module github.com/rdsd/rdsd/test/wycheproof

go 1.26.4

require (
	github.com/c2sp/wycheproof v0.0.0-20260902155932-3fa63dd0344a
	github.com/rdsd/rdsd v0.0.0
)

require (
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/rdsd/rdsd => ../..

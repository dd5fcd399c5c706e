module github.com/rdsd/rdsd

go 1.26

require (
	github.com/pelletier/go-toml/v2 v2.2.4
	golang.org/x/sys v0.38.0
)

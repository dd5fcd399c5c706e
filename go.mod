module github.com/rdsd/rdsd

go 1.26

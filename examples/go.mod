module github.com/go-leasehold/leasehold/examples

go 1.26.0

require github.com/go-leasehold/leasehold v0.0.0

replace github.com/go-leasehold/leasehold => ../

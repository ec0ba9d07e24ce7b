// Package resptest makes answers of any shape, as a client reads them off its connection: for fuzz tests of the code
// that reads answers. Redis itself can be made to send some shapes only.
package resptest

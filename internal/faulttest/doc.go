// Package faulttest holds one test for each fault that users of lock libraries reported, on a real redis-server
// and, where the fault needs it, real processes that are stopped and killed. It has no code of its own; README.md
// tells which test answers which fault.
package faulttest

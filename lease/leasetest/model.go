package leasetest

var modelCases []testCase

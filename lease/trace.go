package lease

// ValidTrace says whether s is a traceparent as the W3C Recommendation Trace Context
// has it in version 00: "00-", 32 digits for the trace, "-", 16 for the span, "-",
// 2 for the flags; digits are hexadecimal and in lower case, and neither id is zero.
// Stores refuse to pass on what is none.
func ValidTrace(s string) bool {
	const version, traceEnd, spanEnd, length = "00-", 35, 52, 55
	return len(s) == length && s[:3] == version && s[traceEnd] == '-' && s[spanEnd] == '-' &&
		hexadecimal(s[3:traceEnd], true) && hexadecimal(s[traceEnd+1:spanEnd], true) && hexadecimal(s[spanEnd+1:], false)
}

// hexadecimal says whether s has digits only, and not only zeros where that counts.
func hexadecimal(s string, notZero bool) bool {
	zero := true
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		zero = zero && c == '0'
	}
	return !zero || !notZero
}

package resptest

import (
	"fmt"
	"strconv"
	"strings"
)

// maxDepth bounds how deep aggregates are nested; what is deeper is left out.
const maxDepth = 16

// Frame returns the answer that a text describes, in RESP3, as it goes over the wire. Every text describes one, so that
// a fuzzer wastes no input; and it is a text, so that what the fuzzer keeps can be read. A line is a value:
//
//	:12       an integer; 0 where that is none
//	,1.5      a double
//	(12       a big number
//	#t        a boolean: true; anything else is false
//	_         null
//	+text     a simple string
//	-ERR no   an error
//	=text     a verbatim string
//	*         an array, of all that follows up to a line with a point; likewise ~, a set, and %, a map
//	.         its end, which may be missing
//
// Any other line is a bulk string, without its first byte where that is a $. Several values are an array of them; no value
// is null.
func Frame(text string) string {
	var values []string
	lines := strings.Split(text, "\n")
	if text == "" {
		lines = nil
	}
	for len(lines) > 0 {
		var value string
		value, lines = next(lines, 0)
		if value != "" {
			values = append(values, value)
		}
	}
	switch len(values) {
	case 0:
		return "_\r\n"
	case 1:
		return values[0]
	}
	return aggregate('*', values)
}

// next makes a value of the first lines, and returns the rest. What is deeper than it may be is no value.
func next(lines []string, depth int) (value string, rest []string) {
	line, rest := lines[0], lines[1:]
	if line == "" {
		return bulk(""), rest
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '.':
		return "", rest
	case '*', '~', '%':
		var values []string
		for len(rest) > 0 && rest[0] != "." {
			if value, rest = next(rest, depth+1); value != "" {
				values = append(values, value)
			}
		}
		if len(rest) > 0 {
			rest = rest[1:]
		}
		if depth == maxDepth {
			return "", rest
		}
		return aggregate(kind, values), rest
	case ':':
		n, _ := strconv.ParseInt(text, 10, 64)
		return fmt.Sprintf(":%d\r\n", n), rest
	case ',', '(', '+', '-':
		return string(kind) + strings.ReplaceAll(text, "\r", "") + "\r\n", rest
	case '#':
		if text != "t" {
			text = "f"
		}
		return "#" + text + "\r\n", rest
	case '_':
		return "_\r\n", rest
	case '=':
		return fmt.Sprintf("=%d\r\ntxt:%s\r\n", len(text)+4, text), rest
	case '$':
		return bulk(text), rest
	}
	return bulk(line), rest
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// aggregate makes an array, a set, or a map, of which an odd last element is left out.
func aggregate(kind byte, values []string) string {
	n := len(values)
	if kind == '%' {
		n /= 2
		values = values[:2*n]
	}
	return fmt.Sprintf("%c%d\r\n%s", kind, n, strings.Join(values, ""))
}

package faults

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	maxDepth = 64        // nesting of replies
	maxBulk  = 512 << 20 // Redis's own limit for a bulk string
	headSize = 2         // leading elements of an aggregate that are kept
)

var errProtocol = errors.New("not the Redis protocol")

// command is one command on its way to the server.
type command struct {
	raw  []byte
	args []string
}

// frame is one message on its way to the client: a reply, or a push.
type frame struct {
	raw  []byte
	kind byte     // its first byte; of the reply itself where attributes come before it
	head []string // the first elements of an aggregate, as far as they are scalars
}

func (f *frame) isError() bool { return f.kind == '-' || f.kind == '!' }

// first returns the first element in lower case: what a push message says it is.
func (f *frame) first() string {
	if len(f.head) == 0 {
		return ""
	}
	return strings.ToLower(f.head[0])
}

// readCommand reads an array of bulk strings, or an inline command.
func readCommand(r *bufio.Reader) (command, error) {
	line, err := readLine(r)
	if err != nil {
		return command{}, err
	}
	if line[0] != '*' {
		return command{raw: line, args: strings.Fields(string(line))}, nil
	}
	count, err := length(line)
	if err != nil {
		return command{}, err
	}
	c := command{raw: line}
	for range count {
		bulk, err := readLine(r)
		if err != nil {
			return command{}, unexpected(err)
		}
		if bulk[0] != '$' {
			return command{}, fmt.Errorf("%w: argument %q", errProtocol, bulk)
		}
		c.raw = append(c.raw, bulk...)
		body, err := readBody(r, bulk)
		if err != nil {
			return command{}, err
		}
		c.raw = append(c.raw, body...)
		c.args = append(c.args, string(bytes.TrimSuffix(body, crlf)))
	}
	return c, nil
}

// readFrame reads one whole message of RESP2 or RESP3, whatever is nested in it.
func readFrame(r *bufio.Reader) (frame, error) {
	var f frame
	for {
		kind, attribute, err := f.read(r, 0)
		if err != nil {
			return frame{}, err
		}
		if !attribute { // attributes stand before the reply they belong to
			f.kind = kind
			return f, nil
		}
		f.head = nil
	}
}

// read appends one element, and what is nested in it, to f.raw.
func (f *frame) read(r *bufio.Reader, depth int) (kind byte, attribute bool, err error) {
	if depth > maxDepth {
		return 0, false, fmt.Errorf("%w: nested too deep", errProtocol)
	}
	line, err := readLine(r)
	if err != nil {
		if depth > 0 {
			err = unexpected(err)
		}
		return 0, false, err
	}
	f.raw = append(f.raw, line...)
	kind = line[0]
	text := line[1:]
	children := 0
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
	case '$', '!', '=':
		if text, err = readBody(r, line); err != nil {
			return 0, false, err
		}
		f.raw = append(f.raw, text...)
	case '*', '~', '>':
		children, err = length(line)
	case '%', '|':
		children, err = length(line)
		children *= 2
	default:
		err = fmt.Errorf("%w: message starts with %q", errProtocol, kind)
	}
	if err != nil {
		return 0, false, err
	}
	if depth == 1 && len(f.head) < headSize {
		f.head = append(f.head, string(bytes.TrimSuffix(text, crlf)))
	}
	for range children {
		for attribute = true; attribute; { // which stand before an element and are none themselves
			if _, attribute, err = f.read(r, depth+1); err != nil {
				return 0, false, err
			}
		}
	}
	return kind, kind == '|', nil
}

var crlf = []byte("\r\n")

// readLine reads a line with its CRLF; it has at least one byte before it.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			err = unexpected(err)
		}
		return nil, err
	}
	if !bytes.HasSuffix(line, crlf) || len(line) == len(crlf) {
		return nil, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	return line, nil
}

// readBody reads a bulk string's bytes and their CRLF; the null bulk string has neither.
func readBody(r *bufio.Reader, line []byte) ([]byte, error) {
	size, err := strconv.Atoi(string(line[1 : len(line)-len(crlf)]))
	if err != nil || size < -1 || size > maxBulk {
		return nil, fmt.Errorf("%w: length %q", errProtocol, line)
	}
	if size == -1 {
		return nil, nil
	}
	var body bytes.Buffer // grows with what comes in, not with what a length claims
	if _, err := io.CopyN(&body, r, int64(size+len(crlf))); err != nil {
		return nil, unexpected(err)
	}
	if !bytes.HasSuffix(body.Bytes(), crlf) {
		return nil, fmt.Errorf("%w: no end after %d bytes", errProtocol, size)
	}
	return body.Bytes(), nil
}

// length reads the number of an aggregate's elements; the null array has none.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1 : len(line)-len(crlf)]))
	if err != nil || n < -1 || n > maxBulk {
		return 0, fmt.Errorf("%w: length %q", errProtocol, line)
	}
	return max(n, 0), nil
}

// unexpected says that a stream ended inside a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

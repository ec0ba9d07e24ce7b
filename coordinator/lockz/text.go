package lockz

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

const (
	// maxKeyShown is how much of a key is shown, which is what errors show of it.
	maxKeyShown = 128
	// maxText is how much is shown of a text that others have written: an owner's
	// name, an error, a problem.
	maxText = 512
)

// nameOf returns a key as it is shown.
func nameOf(key string) Name {
	if len(key) <= maxKeyShown && readable(key) {
		return Name{Text: key, Bytes: len(key)}
	}
	return Name{Text: shown(key), Quoted: true, Bytes: len(key)}
}

// shown returns a key as the errors of package coordinator show it.
func shown(key string) string {
	if len(key) > maxKeyShown {
		return fmt.Sprintf("%q... (%d bytes)", key[:maxKeyShown], len(key))
	}
	return fmt.Sprintf("%q", key)
}

// readable says that a key can be told from all others by looking at it: it has
// nothing that a string of Go would escape, and no spaces that can't be seen.
func readable(key string) bool {
	quoted := strconv.Quote(key)
	return quoted[1:len(quoted)-1] == key && strings.TrimSpace(key) == key && !strings.Contains(key, "  ")
}

// clip makes of a text what can be shown in a line.
func clip(text string) string {
	cut := len(text) > maxText
	if cut {
		text = text[:maxText]
	}
	text = strings.ToValidUTF8(text, string(unicode.ReplacementChar))
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if cut {
		text += "…"
	}
	return text
}

// snake returns a Go name in lower case: FailedReleases is failed_releases.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

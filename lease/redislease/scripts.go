package redislease

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it.
	"embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script as it is sent.
type script struct {
	name string
	text string
	// sha is what Redis calls it by. It is worked out when first needed, for a
	// program that may only use approved hashes must still be able to start.
	sha func() string
}

// The scripts, each with the prelude before it, and the functions where it says.
var (
	acquireScript   = newScript("acquire")
	releaseScript   = newScript("release")
	renewScript     = newScript("renew")
	downgradeScript = newScript("downgrade")
	forceScript     = newScript("force")
	inspectScript   = newScript("inspect")
	annotateScript  = newScript("annotate")
)

func newScript(name string) *script {
	text := source("prelude") + strings.Replace(source(name), "-- functions.lua\n", source("functions"), 1)
	return &script{name: name, text: text, sha: sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		return hex.EncodeToString(sum[:])
	})}
}

func source(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("bug: redislease: " + err.Error()) // it is embedded
	}
	return string(text)
}

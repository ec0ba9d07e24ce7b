package segment

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

// The scripts, each with the prelude before it, and the books where it says.
var (
	ordersScript    = newScript("orders")
	deductScript    = newScript("deduct")
	lookScript      = newScript("look")
	giveScript      = newScript("give")
	rotateScript    = newScript("rotate")
	loadScript      = newScript("load")
	loadBeginScript = newScript("load_begin")
	loadEndScript   = newScript("load_end")
	dropScript      = newScript("drop")
	attachScript    = newScript("attach")
	forgetScript    = newScript("forget")
	rightsScript    = newScript("rights")
	pairsScript     = newScript("pairs")
	partsScript     = newScript("parts")
)

func newScript(name string) *script {
	return makeScript(name, source("prelude")+strings.Replace(source(name), "-- books.lua\n", source("books"), 1))
}

func makeScript(name, text string) *script {
	return &script{name: name, text: text, sha: sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		return hex.EncodeToString(sum[:])
	})}
}

func source(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("bug: segment: " + err.Error()) // it is embedded
	}
	return string(text)
}

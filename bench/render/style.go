package render

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours can be told apart with any eyes: M. Okabe and K. Ito, "Color Universal Design", 2008.
var (
	blue      = color.RGBA{0, 114, 178, 255}
	vermilion = color.RGBA{213, 94, 0, 255}
	green     = color.RGBA{0, 158, 115, 255}
	pink      = color.RGBA{204, 121, 167, 255}
	orange    = color.RGBA{230, 159, 0, 255}
	sky       = color.RGBA{86, 180, 233, 255}
	black     = color.RGBA{40, 40, 40, 255}
	grey      = color.RGBA{140, 140, 140, 255}
)

// colours are those of contenders. Two that share one have no part in the same scenario.
var colours = map[string]color.RGBA{
	"leasehold": blue, "rueidislock": vermilion, "redislock": green, "redsync": pink, "textbook": orange,
	"semaphore": sky, "mutex": black, "memory": black, "list": black, "ping": grey, "pipeline": grey,
}

// variants are drawn with dashes, and paler where an area is filled: each of four in a row in another way. Which ones
// meet in a scenario stand near each other.
var variants = []string{"1ms", "fair", "cached", "cache", "no-retention", "silent", "metrics", "traced"}

// dashes are lengths of what is drawn and of what is left out, in points.
var dashes = [][]vg.Length{{6, 3}, {2, 2}, {9, 2, 2, 2}, {4, 1}}

// look is how a contender is drawn, everywhere.
type look struct {
	line draw.LineStyle
	area color.Color
}

func lookOf(name string) look {
	main, variant, isVariant := strings.Cut(name, "/")
	colour, ok := colours[main]
	if !ok {
		colour = grey
	}
	l := look{line: draw.LineStyle{Color: colour, Width: vg.Points(1.4)}, area: colour}
	if main == "leasehold" {
		l.line.Width = vg.Points(2.4)
	}
	if isVariant {
		way := max(0, slices.Index(variants, variant)) % len(dashes)
		l.line.Dashes = dashes[way]
		l.area = pale(colour, way)
	}
	return l
}

// pale mixes a colour with white, the paler the higher the way.
func pale(c color.RGBA, way int) color.Color {
	white := 40 + 13*way // percent
	mix := func(v uint8) uint8 { return uint8((int(v)*(100-white) + 255*white) / 100) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

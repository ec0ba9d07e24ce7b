package browsertest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "make the pictures in docs/images anew")

func TestPictures(t *testing.T) {
	s := newShop(t)
	s.inUse()
	b := browser(t)
	b.screen(1200, 900, "light")
	b.open(s.page.URL + "/debug/lockz?fleet=1")
	wide := b.picture()
	b.screen(390, 844, "dark")
	b.open(s.page.URL + "/debug/lockz")
	phone := b.picture()
	b.quiet()
	if *update {
		for name, png := range map[string][]byte{"lockz.png": wide, "lockz-phone.png": phone} {
			require.NoError(t, os.WriteFile(filepath.Join("..", "..", "docs", "images", name), png, 0o644))
		}
	}
}

// Package browsertest looks at the live page (package coordinator/lockz) in a real
// browser: Chromium without a window, driven by its DevTools protocol. It has no
// code but tests, and a module of its own, outside of the workspace, so that
// neither the library nor its other tests need a browser:
//
//	make test-browser
//
// With -update it also makes the pictures of the documentation anew, in docs/images.
package browsertest

package cloudapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNullInAListing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"data":[null]}`: true, `{"data":[{"id":1},null,{"id":2}]}`: true, `{"a":{"b":[]},"data":[ {"x":[[]]} , null ]}`: true, `[null]`: true, " [1,\n null]": true,
		`{"data":[]}`: false, `{"data":null}`: false, `{"data":[{"id":null}]}`: false, `{"data":[{"ids":[null]}]}`: false, `{"data":["null"]}`: false,
		`{"data":["a,null","\",null"]}`: false, `{"next":null,"data":[{"a":"[null"}]}`: false,
		`{"data":["\\",null]}`: true, `{"data":["a\\\"b\\\\\"","c",null]}`: true, `{"data":["\"]}`: false, `{"data":["a\"`: false, `{"data":["a`: false,
		``: false, `null`: false, `<a>[null]</a>`: false, `{"data":[true,nul`: true, `no [null]`: false,
	} {
		assert.Equal(t, want, hasNull([]byte(text)), text)
	}
}

func FuzzNullInAListing(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":1},null]}`))
	f.Add([]byte(`{"data":["\`))
	f.Add([]byte(`{"a\\\"b\\":"\"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		hasNull(data)
		for n := range data {
			if data[n] == '"' {
				require.Equal(t, min(endByByte(data, n), len(data)), min(endOfString(data, n), len(data)), n)
			}
		}
	})
}

// endByByte is endOfString as it is read in the definition of JSON.
func endByByte(data []byte, n int) int {
	for n++; n < len(data) && data[n] != '"'; n++ {
		if data[n] == '\\' {
			n++
		}
	}
	return n
}

// endlessPages serves pages without an end, each as large as told after decompression, and different unless told otherwise.
type endlessPages struct {
	size int
	same bool
	n    int
	// zeros are compressed once.
	zeros []byte
}

func (e *endlessPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	e.n++
	mark := e.n
	if e.same {
		mark = 0
	}
	if e.zeros == nil {
		e.zeros = compressed(strings.Repeat("0", e.size))
	}
	w.Header().Set("Content-Encoding", "gzip")
	for _, part := range [][]byte{compressed(fmt.Sprintf(`{"page":%d,"data":"`, mark)), e.zeros, compressed(`"}`)} {
		_, _ = w.Write(part)
	}
}

// compressed is a text by itself; several, one after the other, are the texts one after the other (RFC 1952, section 2.2).
func compressed(text string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return out.Bytes()
}

// TestListingsAreBounded: a cloud that is broken, or hostile, cannot take the memory of the program, or its time for ever.
func TestListingsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		pages endlessPages
		most  int
		err   string
		large bool
	}{
		"small pages":               {endlessPages{size: 10}, maxPages + 1, "more than 1000 pages", false},
		"large pages":               {endlessPages{size: 8 << 20}, maxListing/(8<<20) + 1, "more than 96 MiB", false},
		"large, and little is kept": {endlessPages{size: 8 << 20}, 104/8 + 1, "more than 104 MiB", true}, // its own limit would take half a minute
		"a page too large":          {endlessPages{size: maxBody + 1}, 1, "larger than 24 MiB", false},
		"the same page":             {endlessPages{size: 10, same: true}, 2, "repeats", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(&c.pages)
			defer server.Close()
			client := NewClient(Config{Provider: "test", Timeout: 10 * time.Minute, Operation: func(*http.Request) string { return "GET things" }})
			defer client.Close()
			ctx, listing := WatchListing(t.Context())
			if listing.large = c.large; c.large {
				assert.Equal(t, maxLargeListing, listing.maxSize())
				listing.limit = 104 << 20
			}
			var err error
			asked := 0
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for ; err == nil && asked < 5000; asked++ {
				err = readPage(ctx, client, server.URL)
			}
			require.ErrorContains(t, err, c.err)
			require.ErrorIs(t, err, ErrTransient)
			assert.LessOrEqual(t, asked, c.most)
			assert.LessOrEqual(t, c.pages.n, c.most, "and is not asked again")
			runtime.GC()
			runtime.ReadMemStats(&after)
			assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(16<<20), "nothing is kept")
		})
	}
	ctx, l := WatchListing(t.Context())
	require.NotNil(t, ctx)
	require.NoError(t, l.Add(maxObjects))
	require.ErrorContains(t, l.Add(1), "more than 50000 objects")
}

func readPage(ctx context.Context, c *Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := c.Do(request)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// TestAnEncodingThatWasNotAskedForIsRefused: a decoder behind the bound would let it grow.
func TestAnEncodingThatWasNotAskedForIsRefused(t *testing.T) {
	t.Parallel()
	c := newTestClient(&script{answers: []func(*http.Request) (*http.Response, error){status(http.StatusOK, "Content-Encoding", "br")}}, nil)
	_, err := call(t, c, http.MethodGet, "")
	require.ErrorContains(t, err, "encoding")
}

// TestTokensDoNotRepeat: answers that differ by a request ID alone end a listing all the same, by the token of the next page.
func TestTokensDoNotRepeat(t *testing.T) {
	t.Parallel()
	_, listing := WatchListing(t.Context())
	require.NoError(t, listing.Turn("a"))
	require.NoError(t, listing.Turn("b"))
	require.ErrorContains(t, listing.Turn("a"), "the token of page 4 is that of an earlier one")
}

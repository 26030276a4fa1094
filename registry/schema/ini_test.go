package schema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestINI(t *testing.T) {
	t.Parallel()
	type config struct {
		Text  string
		On    bool
		Count int
		List  []string
	}
	table := Options[config]{
		StringOption(func(c *config) *string { return &c.Text }, OptionRow{FileKey: "[Main] text"}),
		BoolOption(func(c *config) *bool { return &c.On }, OptionRow{FileKey: "[Main] on"}),
		IntOption(func(c *config) *int { return &c.Count }, OptionRow{FileKey: "[Main] count"}),
		ListOption(func(c *config) *[]string { return &c.List }, OptionRow{FileKey: "[Main] list"}),
	}
	parse := func(file string) (config, []INIEntry, error) {
		entries, err := ReadINI([]byte(file))
		require.NoError(t, err)
		keys, rest, err := table.FromINI(entries)
		require.NoError(t, err)
		c, err := table.Parse(Sources{Keys: keys})
		return c, rest, err
	}
	c, rest, err := parse("; comment\n[MAIN]\nTEXT = \"a ; b\" # comment\non\ncount = 0x10\nlist = a\nlist = b\n[Main \"sub\"]\ntext = x\n[Other]\ny = z\n")
	require.NoError(t, err)
	assert.Equal(t, config{Text: "a ; b", On: true, Count: 16, List: []string{"a", "b"}}, c)
	require.Len(t, rest, 2)
	assert.Equal(t, `[Main "sub"] text`, rest[0].FileKey())
	for word, want := range map[string]bool{"yes": true, "ON": true, "1": true, "True": true, "no": false, "off": false, "0": false} {
		c, _, err := parse("[Main]\non = " + word + "\n")
		require.NoError(t, err)
		assert.Equal(t, want, c.On, word)
	}
	for file, want := range map[string]string{"[Main]\non = maybe\n": "key [Main] on of the cloud config", "[Main]\ncount = many\n": "is not a whole number"} {
		_, _, err := parse(file)
		require.ErrorContains(t, err, want)
	}
	c, _, err = parse("[Main]\nlist = a\nlist\n")
	require.NoError(t, err)
	assert.Empty(t, c.List, "a list without a value is empty")
	_, err = ReadINI([]byte("[Main\n"))
	require.ErrorContains(t, err, "cloud config: cannot be read")
	entries, err := ReadINI([]byte("[Main]\ntext\n[Mian]\ntext = x\n"))
	require.NoError(t, err)
	_, rest, err = table.FromINI(entries)
	require.ErrorContains(t, err, "has no value")
	require.ErrorContains(t, table.Unknown(rest), "did you mean [Main] text?")
}

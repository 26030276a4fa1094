package schema

import (
	"net/netip"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAddressPatterns: what matches is what the parser of addresses takes, less zones and addresses of two notations.
func TestAddressPatterns(t *testing.T) {
	t.Parallel()
	v4, v6 := regexp.MustCompile("^"+IPv4Pattern+"$"), regexp.MustCompile("^"+IPv6Pattern+"$")
	for _, text := range []string{
		"192.0.2.1", "0.0.0.0", "255.255.255.255", "256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "", "::", "::1", "1::", "2001:db8::1", "2001:db8:0:0:0:0:0:1",
		"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6::8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7",
		"1::2::3", ":::", "12345::", "g::", "1:2:3:4:5::7:8",
		"1:2::4:5:6:7:8", "1::3:4:5:6:7:8", ":1:2", "1:2:", "web", "2001:DB8::A",
	} {
		ip, err := netip.ParseAddr(text)
		assert.Equal(t, err == nil && ip.Is4(), v4.MatchString(text), text)
		assert.Equal(t, err == nil && ip.Is6(), v6.MatchString(text), text)
	}
	for _, text := range []string{"fe80::1%eth0", "::ffff:192.0.2.1"} {
		assert.False(t, v6.MatchString(text), text)
	}
}

func TestPortPattern(t *testing.T) {
	t.Parallel()
	port := regexp.MustCompile("^" + PortPattern + "$")
	for text, legal := range map[string]bool{
		"0": false, "1": true, "80": true, "9999": true, "10000": true, "59999": true, "65535": true,
		"65536": false, "66000": false, "99999": false, "080": false, "+80": false, "": false,
	} {
		assert.Equal(t, legal, port.MatchString(text), text)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	others := map[string]string{"on": "yes"}
	a := Asker{
		Value: func(key string) string { return others[key] },
		Ports: []Port{{Name: "http", Number: 80, TCP: true}, {Number: 443, TCP: true}, {Name: "dns", Number: 53}},
	}
	for name, c := range map[string]struct {
		rule   Rule
		value  string
		broken bool
	}{
		"matches":               {Must("^x$", ""), "x", false},
		"does not match":        {Must("^x$", ""), "xy", true},
		"lacks":                 {MustNot("y", ""), "x", false},
		"does not lack":         {MustNot("y", ""), "xy", true},
		"does not count":        {Rule{When: []Term{{Matches: "^a$"}}, Needs: []Term{{Matches: "b"}}}, "c", false},
		"counts":                {Rule{When: []Term{{Matches: "^a$"}}, Needs: []Term{{Matches: "b"}}}, "a", true},
		"another one is there":  {Rule{Needs: []Term{{Key: "off", Matches: "."}, {Key: "on", Matches: "."}}}, "a", false},
		"another one is absent": {Rule{Needs: []Term{{Key: "off", Matches: "."}}}, "a", true},
		"both":                  {Rule{Needs: []Term{{Matches: "a", Lacks: "b"}}}, "ab", true},
		"every port":            {Rule{Needs: []Term{{EveryPort: true}}}, "http, 443", false},
		"not every port":        {Rule{Needs: []Term{{EveryPort: true}}}, "http,dns", true},
	} {
		assert.Equal(t, c.broken, c.rule.Broken(c.value, a), name)
	}
	first, broken := FirstBroken([]Rule{Must(".", "one"), Must("x", "two"), Must("y", "three")}, "a", a)
	assert.True(t, broken)
	assert.Equal(t, "two", first.Words)
}

package schema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIDForms: each form takes what the cloud has, and nothing by which a request would become another one.
func TestIDForms(t *testing.T) {
	t.Parallel()
	const dashed, plain = "4de7ac8b-495b-4884-9a69-1050c6793cd6", "4de7ac8b495b48849a691050c6793cd6"
	certificate := ARN("a certificate", "arn:aws:acm:eu-west-1:1:certificate/x", "acm", "iam")
	for name, c := range map[string]struct {
		form      *IDForm
		good, bad []string
	}{
		"UUID":     {UUID, []string{dashed, strings.ToUpper(dashed)}, []string{plain, dashed + "0", "g" + dashed[1:]}},
		"padded":   {UUID.Padded(), []string{dashed, " " + dashed + " "}, []string{plain, "x " + dashed}},
		"any UUID": {AnyUUID, []string{dashed, plain}, []string{plain + "0", dashed[:35], "4de7ac8b-495b48849a691050c6793cd6"}},
		"decimal":  {Decimal, []string{"1", "0", "+7", strings.Repeat("9", 18)}, []string{"-1", "1.5", "0x1", strings.Repeat("9", 19)}},
		"prefixed": {
			PrefixedHex("sg-"),
			[]string{"sg-01234567", "sg-0123456789abcdef0"},
			[]string{"sg-", "sg-*", "SG-01234567", "subnet-01234567", "sg-0123456", "xsg-01234567"},
		},
		"or name": {PrefixedHex("subnet-").OrName("subnet-"), []string{"subnet-01234567", "private a", "subnets"}, []string{"subnet-*", "subnet-x"}},
		"ARN": {
			certificate,
			[]string{"arn:aws:acm:eu-west-1:123456789012:certificate/" + dashed, "arn:aws-cn:iam::1:server-certificate/path/web"},
			[]string{"arn:aws:s3:::bucket/x", "arn:aws:acm:eu-west-1:1:certificate/", "arn:aws:acm:eu-west-1:1:certificate/x y"},
		},
		"reference": {
			Reference,
			[]string{"https://host:9311/v1/secrets/" + dashed, "vault://web"},
			[]string{"https://host/v1?x=y", "https://host/v1#x", "/v1/secrets", "a b", "https://host/../x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.form.Check(c.form.Example), "the example has the form")
			for _, id := range c.good {
				require.NoError(t, c.form.Check(id), id)
			}
			hostile := []string{"../account", "x?y=z", "a/../b", "a\nb", "a\x00b", "%2e%2e", "a&b=c"}
			if c.form.NamedUnless != "" {
				for i := range hostile {
					hostile[i] = c.form.NamedUnless + hostile[i]
				}
			}
			for _, id := range append(c.bad, hostile...) {
				require.ErrorContains(t, c.form.Check(id), "is not "+c.form.Name, id)
			}
		})
	}
}

// TestIDsOfSettings: the form of a row is demanded of its value, and of each element of a list.
func TestIDsOfSettings(t *testing.T) {
	t.Parallel()
	table := Annotations[settings]{
		StringAnnotation(func(s *settings) *string { return &s.Name }, AnnotationRow{Key: "x/id", Spec: Spec{ID: UUID}}),
		ListAnnotation(func(s *settings) *[]string { return &s.Rules }, AnnotationRow{Key: "x/ids", Spec: Spec{ID: PrefixedHex("sg-")}}),
	}
	s, _, err := table.Parse(map[string]string{"x/id": UUID.Example, "x/ids": " sg-01234567,, sg-0123456789abcdef0"})
	require.NoError(t, err)
	assert.Equal(t, settings{Name: UUID.Example, Rules: []string{"sg-01234567", "sg-0123456789abcdef0"}}, s)
	s, _, err = table.Parse(map[string]string{"x/id": "../account", "x/ids": "sg-01234567,sg-*"})
	require.ErrorContains(t, err, `annotation x/id: "../account" is not a UUID; use a form such as`)
	require.ErrorContains(t, err, `annotation x/ids: "sg-01234567,sg-*" holds "sg-*", which is not an ID of the form sg-…`)
	assert.Equal(t, settings{}, s)
}

package azure

import (
	"errors"
	"regexp"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Forms of names. Azure documents those of labels and subscriptions; the others refuse only what no such name can have.
var (
	labelForm        = regexp.MustCompile(`^[a-z][a-z0-9-]{1,61}[a-z0-9]$`)
	ipTagForm        = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*=[!-~]+$`)
	hostForm         = regexp.MustCompile(`^[A-Za-z0-9_*-]+(\.[A-Za-z0-9_-]+)*\.?$`)
	subscriptionForm = regexp.MustCompile(`(?i)^(\*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
)

// judgeAddressNames checks the names sent with a public address. For an internal load balancer, which has no public address, faults are
// only warnings.
func (s *settings) judgeAddressNames() (warnings, err error) {
	judge := func(key, value, reason string) {
		problem := &schema.Problem{Place: "annotation " + key, Value: value, Reason: reason}
		if !s.Internal {
			err = errors.Join(err, problem)
			return
		}
		problem.Reason, problem.Warning = reason+". It has no effect on an internal load balancer", true
		warnings = errors.Join(warnings, problem)
	}
	if s.Label != "" && !labelForm.MatchString(s.Label) {
		judge(annotationLabel, s.Label, "is not a DNS label: use 3 to 63 lower-case letters, digits and dashes, beginning with a letter, and no dash at the end")
	}
	for part := range strings.SplitSeq(s.IPTags, ",") {
		kind, value, pair := strings.Cut(part, "=")
		kind, value = strings.TrimSpace(kind), strings.TrimSpace(value)
		switch {
		case strings.TrimSpace(part) == "":
		case !pair || kind == "":
			warnings = errors.Join(warnings, &schema.Problem{
				Place: "annotation " + annotationIPTags, Value: part, Reason: "is left out: use a form such as RoutingPreference=Internet", Warning: true,
			})
		case !ipTagForm.MatchString(kind + "=" + value):
			judge(annotationIPTags, part, "is not an IP tag: use a form such as RoutingPreference=Internet")
		}
	}
	return warnings, err
}

// judgeNames refuses names that Azure refuses in a private link service.
func (l *linkSettings) judgeNames(refuse func(place, format string, args ...any)) {
	for name := range strings.FieldsSeq(l.FQDNs) {
		if !hostForm.MatchString(name) {
			refuse(annotationLinkFQDNs, "%q is not a name such as web.example.com", name)
		}
	}
	for _, a := range []struct{ key, list string }{{annotationLinkVisible, l.Visibility}, {annotationLinkApproved, l.Approval}} {
		for id := range strings.FieldsSeq(a.list) {
			if !subscriptionForm.MatchString(id) {
				refuse(a.key, "%q is neither the ID of a subscription nor *", id)
			}
		}
	}
}

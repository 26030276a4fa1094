package chart

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// oldestKubernetes is the oldest release whose expressions the policy is written in.
var oldestKubernetes = version.MajorMinor(1, 34)

// judge is a policy as the API server evaluates it.
type judge struct {
	variables   []variable
	validations []struct{ legal, message cel.Program }
}

// variable is one of a policy, which may look at those before it.
type variable struct {
	name  string
	value cel.Program
}

func program(t *testing.T, env *cel.Env, expression string, options ...cel.ProgramOption) cel.Program {
	t.Helper()
	ast, issues := env.Compile(expression)
	require.NoError(t, issues.Err(), expression)
	p, err := env.Program(ast, options...)
	require.NoError(t, err)
	return p
}

func newJudge(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy, options ...cel.ProgramOption) judge {
	t.Helper()
	set, err := environment.MustBaseEnvSet(oldestKubernetes).Extend(environment.VersionedOptions{
		IntroducedVersion: oldestKubernetes, EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType), cel.Variable("variables.annotations", cel.MapType(cel.StringType, cel.StringType)),
			cel.Variable("variables.defaults", cel.MapType(cel.StringType, cel.StringType)), cel.Variable("oldObject", cel.DynType),
			cel.Variable("variables.before", cel.MapType(cel.StringType, cel.StringType)), cel.Variable("variables.elsewhere", cel.BoolType),
		},
	})
	require.NoError(t, err)
	env, err := set.Env(environment.NewExpressions)
	require.NoError(t, err)
	j := judge{}
	for _, v := range policy.Spec.Variables {
		j.variables = append(j.variables, variable{"variables." + v.Name, program(t, env, v.Expression, options...)})
	}
	for _, v := range policy.Spec.Validations {
		j.validations = append(j.validations, struct{ legal, message cel.Program }{
			program(t, env, v.Expression, options...), program(t, env, v.MessageExpression, options...),
		})
	}
	return j
}

// says returns what the policy says about a Service, sorted.
func (j judge) says(t *testing.T, service *v1.Service) []string {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(service)
	require.NoError(t, err)
	given := map[string]any{"object": object, "oldObject": nil}
	for _, v := range j.variables {
		value, _, err := v.value.Eval(given)
		require.NoError(t, err, v.name)
		given[v.name] = value
	}
	said := []string{}
	for _, v := range j.validations {
		legal, _, err := v.legal.Eval(given)
		require.NoError(t, err, "%v", service.Annotations)
		if legal.Value() == true {
			continue
		}
		message, _, err := v.message.Eval(given)
		require.NoError(t, err, "%v", service.Annotations)
		said = append(said, fmt.Sprint(message.Value()))
	}
	slices.Sort(said)
	return said
}

// affordable is the API server's limit of what one expression may cost. To count it doubles the time of an evaluation.
var affordable = cel.CostLimit(1_000_000)

// policiesOf are those of a cloud about annotations, errors and warnings, of a chart with further values.
func policiesOf(t *testing.T, p registry.Provider, values string, options ...cel.ProgramOption) (errs, warnings judge) {
	t.Helper()
	all := objects(t, render(t, "cloud-controller-manager", installedValues(p)+"admissionPolicy: {enabled: true}\n"+values))
	of := func(kind string) judge {
		policy, ok := all["ValidatingAdmissionPolicy/ccm-cloud-controller-manager-service-annotation-"+kind].(*admissionv1.ValidatingAdmissionPolicy)
		require.True(t, ok, "%v", slices.Collect(maps.Keys(all)))
		return newJudge(t, policy, options...)
	}
	return of("errors"), of("warnings")
}

// hints match the suggestions in events for misspelt values, which admission expressions cannot make.
var hints = regexp.MustCompile(`; did you mean "[^"]*"\?$`)

func texts(err error) []string {
	all := []string{}
	for _, problem := range schema.Problems(err) {
		all = append(all, hints.ReplaceAllString(problem.Error(), ""))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// oddValues are legal ones of one annotation or another, and such as nobody should write.
var oddValues = []string{
	" ", "x", "0", "1", "2", "5", "11", "80", "443", "65535", "65536", "-1", "+80", "080", "1.5", "1e3", "10s", "20s",
	"1h", "100000h", "1.5s", "1500ms", "-5s", "5", "s",
	"public", "internal", "Internal", " internal", "internal ", "ínternal", "none", "v1", "v2", "V2", "tcp", "http",
	"HTTPS", "https", "round-robin", "source-ip", "node-port",
	"/healthz", "/", "healthz", "/a b", "/ü", "secret:web", "secret:", "secret:Web", "secret:other/web", "a", "a",
	"192.0.2.1", " 192.0.2.1", "192.0.2.1,2001:db8::1", "2001:db8::1 , 192.0.2.1", "192.0.2.1,192.0.2.2",
	"2001:db8::1,2001:db8::2", "192.0.2.1,", "192.0.2.1,2001:db8::1,192.0.2.2",
	"::ffff:192.0.2.1", "fe80::1%eth0", "999.1.1.1", "1.2.3", "web.example.com", "Web.example.com", "web..example.com",
	"a.", "a", "a.", "a",
	"team=web", "team=web, stage=prod", "team", "=web", " =web", "a=b=c", "a=,b=", "a=b,", "https,http", "http, 443",
	"dns", "8443", "https,dns", "https,,http", ",",
	"4de7ac8b-495b-4884-9a69-1050c6793cd6", "4de7ac8b495b48849a691050c6793cd6", "4DE7AC8B-495B-4884-9A69-1050C6793CD6",
	"123456", "sg-0123456789abcdef0", "subnet-0123456789abcdef0", "a,b",
	"https://host/v1/containers/4de7ac8b-495b-4884-9a69-1050c6793cd6", "arn:aws:acm:us-east-1:123456789012:certificate/4de7ac8b-495b-4884-9a69-1050c6793cd6",
	"pool=edge", "a in b", "pool=edge,zone in (a,b),!c", "zone notin (", "a in ()", "a>5", "a>x",
	`quo"te`, `back\slash`, "tab\there", "line\nbreak", "日本", strings.Repeat("x", 4096), strings.Repeat("x", 4097),
	"300.5s", "100m30s", "5m", "4m30s", "a?b", "999999h",
}

// portableKeys are the keys of the portable annotations that a cloud's words are about.
func portableKeys() []string {
	keys := []string{}
	for _, row := range portable.Annotations.Rows() {
		keys = append(keys, row.Key)
	}
	return keys
}

func portableService(annotations map[string]string) *v1.Service {
	udp := conformance.Port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := conformance.Service("web", maps.Clone(annotations), conformance.Port("http", 80, 30080), conformance.Port("https", 443, 30443), udp)
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	return s
}

// judgedByCode reports whether a problem is one of those that only the controller finds, which a row says of itself.
func judgedByCode(cloud portable.Cloud, problem string) bool {
	for _, key := range portableKeys() {
		for _, pair := range cloud.Pairs(key) {
			if pair.Serves.Judged != "" && strings.HasPrefix(problem, "annotation "+key+": ") {
				return true
			}
		}
	}
	return false
}

// requireSameWords: the event (which has the words of the translation), validate and the policies say the same of a Service. It returns how
// many things the policy for errors says.
func requireSameWords(t *testing.T, p registry.Provider, in registry.Inputs, errs, warnings judge, service *v1.Service) int {
	t.Helper()
	translation := registry.Translate(p, in, service)
	warned, refused := registry.CheckServiceOf(p, in, service)
	require.Subset(t, append(texts(refused), ""), texts(translation.Err), "validate says what the event says: %q", service.Annotations)
	for _, w := range translation.Warnings {
		require.Contains(t, texts(warned), w.Error(), "%q", service.Annotations)
	}
	said := errs.says(t, service)
	count := len(said)
	said = slices.DeleteFunc(said, func(one string) bool { return !aboutPortable(one) })
	for i := range said {
		said[i] = tooLong.ReplaceAllString(said[i], "$1: is too long")
	}
	declared := texts(translation.Err)
	for i := range declared {
		declared[i] = tooLong.ReplaceAllString(declared[i], "$1: is too long")
	}
	declared = slices.DeleteFunc(declared, func(one string) bool { return judgedByCode(p.Cloud(), one) && !slices.Contains(said, one) })
	require.Equal(t, declared, said, "%q", service.Annotations)

	effectless := []string{}
	for _, w := range translation.Warnings {
		if strings.Contains(w.Error(), "has no effect on ") {
			effectless = append(effectless, w.Error())
		}
	}
	slices.Sort(effectless)
	if translation.Err == nil { // what is refused is told first
		about := slices.DeleteFunc(warnings.says(t, service), func(one string) bool { return !aboutPortable(one) })
		require.Equal(t, effectless, about, "%q", service.Annotations)
	}
	return count
}

// tooLong are the words about a value that is too long: the policy does not count how much it is.
var tooLong = regexp.MustCompile(`^(annotation [^ ]*): is (?:\d+ characters long|too long); use at most \d+(?: characters)?$`)

func aboutPortable(text string) bool { return strings.HasPrefix(text, "annotation "+portable.Prefix) }

// instead are the words about what counts in a value's place, which the policy leaves out.
var instead = regexp.MustCompile(`; [^;]+ is used instead$`)

// TestSwitchesAreJudgedAlike: of every annotation that is true or false, on every cloud, the admission policy says what validate says,
// whichever forms the cloud takes.
func TestSwitchesAreJudgedAlike(t *testing.T) {
	t.Parallel()
	values := []string{"true", "false", "TRUE", "tRUE", "True", "1", "t", "0", "f", " true", "true ", "yes", "2", "on"}
	for _, p := range clouds() {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			errs, warnings := policiesOf(t, p, "", affordable)
			for _, row := range p.Annotations {
				if row.Kind != schema.KindBool || row.Where != nil || row.ReadIf() != nil || strings.Contains(row.Key, schema.Numbered) {
					continue
				}
				for _, value := range values {
					service := portableService(map[string]string{row.Key: value})
					warned, refused := registry.CheckServiceOf(p, registry.Inputs{}, service)
					form := fmt.Sprintf("annotation %s: %q is ", row.Key, value)
					about := func(all []string) []string {
						all = slices.DeleteFunc(all, func(one string) bool { return !strings.HasPrefix(one, form) || !strings.Contains(one, `"true"`) })
						for i, one := range all {
							all[i] = instead.ReplaceAllString(one, "")
						}
						return all
					}
					require.Equal(t, about(append(texts(refused), texts(warned)...)), about(append(errs.says(t, service), warnings.says(t, service)...)))
				}
			}
		})
	}
}

// TestSameWords: of every portable annotation with legal and illegal values on every cloud, events, validate and the admission policy
// say the same. The fast tier tries each value of each annotation on a third of the clouds.
func TestSameWords(t *testing.T) {
	t.Parallel()
	for cloud, p := range clouds() {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			errs, warnings := policiesOf(t, p, "")
			said, tried := 0, 0
			for k, key := range portableKeys() {
				for v, value := range oddValues {
					if !tier.All() && (cloud+k+v)%3 != 0 {
						continue
					}
					tried++
					said += requireSameWords(t, p, registry.Inputs{}, errs, warnings, portableService(map[string]string{key: value}))
				}
			}
			assert.Greater(t, said, tried/3, "many of them are illegal")
			random := rand.New(rand.NewPCG(1, 2))
			own := []string{}
			for _, row := range p.Annotations {
				if !strings.Contains(row.Key, schema.Numbered) {
					own = append(own, row.Key)
				}
			}
			several := 100
			if tier.All() {
				several = 500
			}
			for range several {
				asked := map[string]string{}
				for range 2 + random.IntN(3) {
					asked[portableKeys()[random.IntN(len(portableKeys()))]] = likely(random)
				}
				if random.IntN(2) == 0 {
					asked[own[random.IntN(len(own))]] = []string{"true", "false", "nlb", "123456", "web", "REGIONAL"}[random.IntN(6)]
				}
				requireSameWords(t, p, registry.Inputs{}, errs, warnings, portableService(asked))
			}
		})
	}
}

// likely are values of which many go together.
func likely(random *rand.Rand) string {
	return []string{
		"internal", "public", "123456", "web", "secret:web", "https", "http,https", "80", "v1", "v2", "node-port", "10s", "3", "192.0.2.1", "tcp",
		"4de7ac8b-495b-4884-9a69-1050c6793cd6", "sg-0123456789abcdef0", "/healthz", "90s", "least-connections",
	}[random.IntN(20)]
}

// TestSameWordsWithDefaults: what a Service has by its class counts for the policy as well, so that nothing is refused that is served.
func TestSameWordsWithDefaults(t *testing.T) {
	t.Parallel()
	set := defaults.Set{
		"":                     {portable.Certificate: "secret:it"},
		"example.com/internal": {portable.Scheme: "internal", portable.Subnet: "databases", portable.Network: "example"},
		"example.com/nothing":  {},
	}
	var values strings.Builder
	values.WriteString("serviceDefaults:\n")
	for _, class := range append(set.Classes(), "") {
		fmt.Fprintf(&values, "- loadBalancerClass: %q\n  annotations: {", class)
		for _, key := range slices.Sorted(maps.Keys(set[class])) {
			fmt.Fprintf(&values, "%s: %q, ", key, set[class][key])
		}
		values.WriteString("}\n")
	}
	in := registry.Inputs{Defaults: &defaults.Source{}}
	in.Defaults.Use(set)
	for cloud, p := range clouds() {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			errs, _ := policiesOf(t, p, values.String())
			for _, class := range append(set.Classes(), "", "example.com/another") {
				for k, key := range portableKeys() {
					for v, value := range []string{"internal", "public", "web", "https", "192.0.2.1", "4de7ac8b-495b-4884-9a69-1050c6793cd6"} {
						if !tier.All() && (cloud+k+v)%3 != 0 {
							continue
						}
						for _, more := range []string{"", portable.Scheme, portable.Certificate, portable.Subnet} {
							s := portableService(map[string]string{more: "", key: value}) // what is empty says nothing
							delete(s.Annotations, "")
							if class != "" {
								s.Spec.LoadBalancerClass = &class
							}
							refused := texts(registry.Translate(p, in, s).Err)
							for _, one := range errs.says(t, s) {
								assert.Contains(t, append(refused, ""), one, "%q of class %q: what is served is not refused", s.Annotations, class)
							}
						}
					}
				}
			}
		})
	}
}

package conformance

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// Examples returns the Services of the YAML examples on a provider's page, which make generate puts into its testdata/examples.yaml, as
// the API server would store them. It fails where an example is no Service or where check finds anything in it.
func Examples(t *testing.T, examples string, check func(registry.Inputs, *v1.Service) (warnings, err error)) []*v1.Service {
	t.Helper()
	documents := strings.Split(examples, "---\n")[1:]
	require.NotEmpty(t, documents)
	services := make([]*v1.Service, len(documents))
	for i, text := range documents {
		s := &v1.Service{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), s), text)
		registry.AsStored(s)
		warnings, err := check(registry.Inputs{}, s)
		require.NoError(t, err, text)
		require.NoError(t, warnings, text)
		services[i] = s
	}
	return services
}

// LatestBody returns the body of the latest request of an operation, such as "POST /v2/load_balancers". A form comes back
// as the object that the dots in its names describe.
func LatestBody(t *testing.T, server *simkit.Server, operation string) map[string]any {
	t.Helper()
	var body map[string]any
	for _, c := range server.Calls().Latest {
		if c.Operation == operation {
			body = map[string]any{}
			if strings.HasPrefix(c.Body, "{") {
				require.NoError(t, json.Unmarshal([]byte(c.Body), &body))
				continue
			}
			form, err := url.ParseQuery(c.Body)
			require.NoError(t, err)
			for name := range form {
				put(body, strings.Split(name, "."), form.Get(name))
			}
		}
	}
	require.NotNil(t, body, "no %s was sent", operation)
	return body
}

func put(object map[string]any, path []string, value string) {
	if len(path) == 1 {
		object[path[0]] = value
		return
	}
	inner, ok := object[path[0]].(map[string]any)
	if !ok {
		inner = map[string]any{}
		object[path[0]] = inner
	}
	put(inner, path[1:], value)
}

// Field follows a path such as "configs.0.protocol" through decoded JSON; what is absent is nil.
func Field(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i := int(name[0] - '0')
			if i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

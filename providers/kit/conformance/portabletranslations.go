package conformance

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// runTranslation: a portable annotation becomes annotations of the cloud that the cloud itself takes, or it is refused or told of.
func runTranslation(t *testing.T, f *Fixture, row schema.AnnotationRow) {
	t.Helper()
	provider, err := registry.Linked().Lookup(f.Provider.Name)
	require.NoError(t, err)
	translate := func(annotations map[string]string) portable.Translation {
		return registry.Translate(provider, registry.Inputs{}, portableService("portable", annotations))
	}
	c, asked := portableCase(f, newKube("cluster-1"), row.Key)
	translation := translate(asked)
	pairs := provider.Cloud().Pairs(row.Key)

	broken := maps.Clone(asked)
	maps.Copy(broken, illegalFor(row))
	for key := range illegalFor(row) {
		require.ErrorContains(t, translate(broken).Err, key, "a value that is illegal on every cloud")
	}
	switch {
	case len(pairs) > 0:
		requireOwn(t, provider, c, translation)
	case portable.Essential(row.Key):
		require.ErrorContains(t, translation.Err, portable.Refusal(provider.Cloud().Title))
		return
	case row.Key == portable.Hostname:
		assert.Equal(t, c.Value, translation.Hostname)
		return
	case portable.Shared(row.Key):
		require.NoError(t, translation.Err)
		assert.Equal(t, asked, translation.Service.Annotations)
		return
	default:
		require.NoError(t, translation.Err)
		assert.Contains(t, oneText(translation.Warnings), row.Key)
		assert.Equal(t, asked, translation.Service.Annotations, "it has no effect")
		return
	}
	made := map[string]*v1.Service{}
	for _, choice := range row.Choices {
		with := map[string]string{}
		maps.Copy(with, c.With)
		with[row.Key] = choice
		chosen := translate(with)
		if chosen.Err != nil {
			require.ErrorContains(t, chosen.Err, row.Key+`: "`+choice+`" is not one of `)
			continue
		}
		own := ownService(chosen)
		for other, its := range made {
			assert.NotEqual(t, its, own, "%s and %s make the same", other, choice)
		}
		made[choice] = own
	}
	assert.Equal(t, len(row.Choices) > 0, len(made) > 0, "one of the choices is served")
}

// requireOwn demands that the cloud takes what an annotation was translated to, and that both together say the same.
func requireOwn(t *testing.T, provider registry.Provider, c PortableCase, translation portable.Translation) {
	t.Helper()
	require.NoError(t, translation.Err)
	own := ownService(translation)
	assert.True(t, c.Seen != nil || len(translation.From) > 0, "the cloud's own annotations say it")
	_, refused := registry.CheckServiceOf(provider, registry.Inputs{}, own)
	require.NoError(t, refused, "the cloud refuses its own annotations: %v", own.Annotations)
	both := registry.Translate(provider, registry.Inputs{}, translation.Service)
	require.NoError(t, both.Err)
	assert.NotContains(t, oneText(both.Warnings), "contradict")
	assert.Equal(t, own, ownService(both), "the portable annotations and the cloud's own say the same")
}

// ownService is a translated Service without its portable annotations.
func ownService(translation portable.Translation) *v1.Service {
	own := translation.Service.DeepCopy()
	for _, row := range portable.Annotations.Rows() {
		delete(own.Annotations, row.Key)
	}
	return own
}

// runRefusedTogether: what the provider itself refuses of annotations that were translated is named by the portable annotations.
func runRefusedTogether(t *testing.T, f *Fixture) {
	t.Helper()
	provider, err := registry.Linked().Lookup(f.Provider.Name)
	require.NoError(t, err)
	for _, annotations := range together {
		s := portableService("together", annotations)
		_, refused := registry.CheckServiceOf(provider, registry.Inputs{}, s)
		for _, problem := range schema.Problems(refused) {
			assert.Contains(t, problem.Error(), portable.Prefix)
		}
	}
}

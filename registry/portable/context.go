package portable

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
)

type translationKey struct{}

// With adds to an operation's context the translation that its Service comes from.
func With(ctx context.Context, t Translation) context.Context {
	if t.Err == nil && len(t.From) == 0 {
		return ctx
	}
	return context.WithValue(ctx, translationKey{}, t)
}

func translationFrom(ctx context.Context) Translation {
	t, _ := ctx.Value(translationKey{}).(Translation)
	return t
}

// Refused reports whether the annotations of the Service are refused: its settings are unknown then, and nothing but the nodes may be
// changed.
func Refused(ctx context.Context) bool { return translationFrom(ctx).Err != nil }

// Words returns a function for texts about annotations that may come from portable ones: it names both, like Translation.Named.
func Words(ctx context.Context) func(text string) string {
	t := translationFrom(ctx)
	return func(text string) string {
		longestFirst := slices.SortedFunc(maps.Keys(t.From), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
		for _, own := range longestFirst {
			text = strings.ReplaceAll(text, "annotation "+own+":", "annotation "+t.From[own]+", which is "+own+":")
		}
		return text
	}
}

package contract

import "context"

type tagsKey struct{}

// WithTags returns a context by which a cloud tells the tags of the instance whose metadata is read.
func WithTags(ctx context.Context, told *map[string]string) context.Context {
	return context.WithValue(ctx, tagsKey{}, told)
}

// TellTags tells the tags of an instance, if anybody wants to know them. None are a doubt: nothing is concluded from them.
func TellTags[T any](ctx context.Context, instance T, tags func(T) map[string]string) {
	if told, wanted := ctx.Value(tagsKey{}).(*map[string]string); wanted && tags != nil {
		*told = tags(instance)
	}
}

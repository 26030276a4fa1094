package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// watchFunc bounds the size of a listing: cloudapi.WatchListing, or WatchLargeListing.
type watchFunc func(context.Context) (context.Context, *cloudapi.Listing)

// listPages reads all pages of a listing, and counts them. token is the field of the input that asks for the next page. convert makes of
// each object what is kept of it. An endless listing is an error.
func listPages[C client, Option, In, Out, T, V any](
	ctx context.Context, a *api, watch watchFunc, what string, do func(C, context.Context, *In, ...func(*Option)) (*Out, error),
	in *In, token **string, page func(*Out) (objects []T, next *string), convert func(*T) V,
) (list []V, pages int, err error) {
	ctx, listing := watch(ctx)
	for pages = 1; ; pages++ {
		out, err := call(ctx, a, what, do, in)
		if err != nil {
			return nil, pages, err
		}
		objects, next := page(out)
		for n := range objects {
			list = append(list, convert(&objects[n]))
		}
		if err := listing.Add(len(objects)); err != nil {
			return nil, pages, apiError(err, nil, what)
		}
		if aws.ToString(next) == "" {
			return list, pages, nil
		}
		if err := listing.Turn(*next); err != nil {
			return nil, pages, apiError(err, nil, what)
		}
		*token = next
	}
}

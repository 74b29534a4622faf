package cost

import (
	"strings"

	"github.com/tiktoken-go/tokenizer/codec"
)

// counter counts the tokens of a text.
type counter interface {
	Count(text string) (int, error)
}

// vocabulary is a set of tokens that models share.
type vocabulary struct {
	name string
	load func() counter
	// models are the names that use it: exact ones, and beginnings that end in a
	// dash or a dot.
	models []string
}

// vocabularies are those with an embedded table. The names are those of OpenAI's
// models (tiktoken's model table, and OpenAI's documentation of models, both as of
// October 2026). Older ones than cl100k_base belong to models that are gone.
var vocabularies = [...]vocabulary{
	{"o200k_base", func() counter { return codec.NewO200kBase() }, []string{
		"gpt-5", "gpt-5-", "gpt-5.", "gpt-4.5-", "gpt-4.1", "gpt-4.1-", "gpt-4o", "gpt-4o-", "chatgpt-4o-", "gpt-oss-",
		"o1", "o1-", "o3", "o3-", "o4-", "codex-mini-",
	}},
	{"cl100k_base", func() counter { return codec.NewCl100kBase() }, []string{
		"gpt-4", "gpt-4-", "gpt-3.5", "gpt-3.5-", "gpt-35-", "text-embedding-ada-002", "text-embedding-3-", "davinci-002", "babbage-002",
	}},
}

// vocabularyOf finds the vocabulary of a model, nil if it is not known. Resellers
// put the maker's name in front, and tuned models are called after their base:
// openai/gpt-4o, ft:gpt-4o-mini:acme::id.
func vocabularyOf(model string) *vocabulary {
	model = strings.TrimPrefix(model, "openai/")
	if tuned, ok := strings.CutPrefix(model, "ft:"); ok {
		model, _, _ = strings.Cut(tuned, ":")
	}
	for i := range vocabularies {
		for _, name := range vocabularies[i].models {
			open := name[len(name)-1] == '-' || name[len(name)-1] == '.'
			if model == name || open && strings.HasPrefix(model, name) {
				return &vocabularies[i]
			}
		}
	}
	return nil
}

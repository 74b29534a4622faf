package config

// Values of Estimate.Tokenizer.
const (
	TokenizerAuto  = "auto"  // count where the vocabulary is known
	TokenizerBytes = "bytes" // never count
)

// Estimate is how the tokens of a prompt are estimated.
type Estimate struct {
	Tokenizer string `yaml:"tokenizer" enum:"auto|bytes" help:"auto: count with the model's vocabulary where Headway has it (OpenAI's since gpt-3.5), below 1 ms a request, else go by bytes per token learned from usage; bytes: always go by bytes"`
}

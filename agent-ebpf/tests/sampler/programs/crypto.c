/* Digests, ciphers and signatures of libcrypto: hand-written assembler, some of it without unwind information. */
#include "burn.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#define BLOCK_BYTES 16384

static unsigned char input[BLOCK_BYTES], output[BLOCK_BYTES + 64];

KEEP void hash_block(const EVP_MD *digest)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_DigestInit_ex(context, digest, NULL);
	for (int i = 0; i < 40; i++)
		EVP_DigestUpdate(context, input, sizeof input);
	EVP_DigestFinal_ex(context, output, NULL);
	EVP_MD_CTX_free(context);
	sink += output[0];
}

KEEP void encrypt_block(const EVP_CIPHER *cipher)
{
	static const unsigned char key[64] = { 1 }, vector[16] = { 2 };
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	int size = 0;
	EVP_EncryptInit_ex(context, cipher, NULL, key, vector);
	for (int i = 0; i < 40; i++)
		EVP_EncryptUpdate(context, output, &size, input, sizeof input);
	EVP_CIPHER_CTX_free(context);
	sink += output[0] + size;
}

KEEP void sign_block(EVP_PKEY *key)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	size_t size = sizeof output;
	EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key);
	EVP_DigestSign(context, output, &size, input, 64);
	EVP_MD_CTX_free(context);
	sink += output[0] + size;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	EVP_PKEY *rsa = EVP_RSA_gen(2048);
	EVP_PKEY *curve = EVP_EC_gen("P-256");
	while (now_seconds() < end) {
		const EVP_MD *digests[] = { EVP_sha256(), EVP_sha512(), EVP_sha1(), EVP_md5(), EVP_sha3_256() };
		const EVP_CIPHER *ciphers[] = { EVP_aes_128_cbc(), EVP_aes_256_gcm(), EVP_aes_128_ctr(), EVP_chacha20() };
		for (int i = 0; i < 5; i++)
			hash_block(digests[i]);
		for (int i = 0; i < 4; i++)
			encrypt_block(ciphers[i]);
		for (int i = 0; i < 8; i++) {
			sign_block(rsa);
			sign_block(curve);
		}
	}
	return 0;
}

# shellcheck shell=bash
# A certificate authority for one service. Needs openssl, and PKI, the folder of its files.

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

make_authority() {
  new_key "$PKI/ca.key"
  openssl req -x509 -new -key "$PKI/ca.key" -sha256 -days 365 -subj '/CN=staffetta test authority' \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign' -out "$PKI/ca.crt"
}

# certify NAME SUBJECT EXTENSIONS creates NAME.key and NAME.crt, signed by the authority.
certify() {
  new_key "$PKI/$1.key"
  openssl req -new -key "$PKI/$1.key" -subj "$2" |
    openssl x509 -req -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 365 -sha256 \
      -extfile <(printf '%s\n' "$3") -out "$PKI/$1.crt" 2>/dev/null ||
    die "openssl could not certify $1"
}

# The key pair of service account tokens.
make_signing_pair() {
  openssl genrsa -out "$PKI/$1.key" 2048 2>/dev/null
  openssl rsa -in "$PKI/$1.key" -pubout -out "$PKI/$1.pub" 2>/dev/null
}
